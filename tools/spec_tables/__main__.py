import sys

from tools.spec_tables import main

sys.exit(main(sys.argv[1:]))
