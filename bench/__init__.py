"""What the product costs, as ratios to hand-written SQL on the same driver: ``python -m bench``."""
