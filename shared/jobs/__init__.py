"""`singer-spark`: both programs as one job, with its state, its history and its environments."""
