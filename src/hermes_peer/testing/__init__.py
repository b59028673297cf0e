"""What we test with, and what users may test with: pairs on a virtual clock, fault proxy, contract kits."""
