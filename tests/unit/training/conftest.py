"""Make the parts of the training programs that need no training framework importable."""

import sys
from pathlib import Path

for framework in ("ascend", "benchmark", "mindspore", "oneflow", "pytorch"):
    sys.path.insert(0, str(Path(__file__).parents[3] / "training" / framework))
