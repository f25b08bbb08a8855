"""How many steps there are."""

STEPS = 3
