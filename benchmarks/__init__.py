"""Measurements: ratios within one run, printed and written as JSON. Never asserted in a test."""
