"""The app on a model that takes its time, so that a test can look at a run while it runs."""

import sys
import time
from typing import Any

import app
from explorer.target import TargetModel

PASS_SECONDS = 0.04
quick_verify = TargetModel.verify


def slow_verify(self: TargetModel, *args: Any, **named: Any) -> Any:
    time.sleep(PASS_SECONDS)
    return quick_verify(self, *args, **named)


if __name__ == "__main__":
    TargetModel.verify = slow_verify  # type: ignore[method-assign]
    sys.exit(app.main())
