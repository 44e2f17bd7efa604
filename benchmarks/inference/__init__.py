"""How fast exports of one run answer on the machine that asks."""
