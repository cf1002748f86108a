"""`python -m kernel_ci`."""

import sys

from kernel_ci.cli import main

sys.exit(main())
