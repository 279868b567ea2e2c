"""The folder that ``programs.py`` puts on the path of a program it starts; ``sitecustomize.py`` is all it adds."""
