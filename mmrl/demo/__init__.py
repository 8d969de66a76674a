"""The page behind `python -m mmrl.demo`: a file for each tab, and what the tabs show."""
