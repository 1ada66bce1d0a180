"""`unsee studio`: a page to start, watch, judge and try runs. The run folders are the truth; nothing else is kept."""
