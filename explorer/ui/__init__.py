"""The page. Gradio is imported here and in app.py only."""
