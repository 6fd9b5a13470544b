"""The page about a run that has ended: one file of HTML with its pictures, and no script."""
