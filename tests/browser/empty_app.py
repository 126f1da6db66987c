"""The app without its recorded example: what a viewer sees before anything has run."""

import sys
from pathlib import Path

import app
from explorer import session

if __name__ == "__main__":
    session.EXAMPLE_FILE = Path("nothing-recorded.json")
    sys.exit(app.main())
