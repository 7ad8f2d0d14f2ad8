"""Few-shot meta-learning of the bilevel paper: Figures 1, 2, 4 to 8."""
