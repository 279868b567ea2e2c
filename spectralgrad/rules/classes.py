"""The classes of this library's methods, in the order in which :func:`spectralgrad.methods` lists them."""

# isort: off
from .exact import *
from .gaps import *
from .taylor import *
from .pade import *
from .power_iteration import *
from .newton_schulz import *
from .root_approximants import *
from .relative_gaps import *
from .svd_inv import *
from .polar_iterations import *
