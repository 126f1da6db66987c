"""Decoding explorer: watch a language model decode, step by step, under several methods."""

__version__ = "0.2.0"
