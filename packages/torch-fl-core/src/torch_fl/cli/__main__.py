"""Owns: `python -m torch_fl.cli`, the `torch-fl` command where no script is installed.

Python imports the package torch_fl first, and that activates: where torch itself is broken, only
the script gets as far as the doctor.
"""

from __future__ import annotations

import sys

from torch_fl.cli.main import main

sys.exit(main())
