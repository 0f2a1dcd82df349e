"""Owns: ``python -m torch_fl.testing``, which is ``torch-fl conformance``."""

import sys

from torch_fl.cli.main import main

sys.exit(main(["conformance", *sys.argv[1:]]))
