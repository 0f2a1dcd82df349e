"""Owns: `python -m torch_fl.cli`, the `torch-fl` command where no script is installed."""

from __future__ import annotations

import sys

from torch_fl.cli.main import main

sys.exit(main())
