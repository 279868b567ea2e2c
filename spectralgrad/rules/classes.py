"""The classes of this library's methods, in the order in which :func:`spectralgrad.methods` lists them."""

# isort: off
from .iterations import Exact as Exact
from .gaps import *
from .pade import *
from .iterations import *
from .root_approximants import *
from .relative_gaps import *
from .svd_inv import *
from .polar_iterations import *
