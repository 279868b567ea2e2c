"""The gradient-accuracy table of all rules, and the Daleckiĭ–Kreĭn formula."""
