"""Owns: that these tests run only with two devices, as ../test_device_rules.py starts them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("FLAGOS_HOST_DEVICES") == "2" else ["test_*.py"]
