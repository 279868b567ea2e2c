r"""The second derivatives of a loss of eigenvalues that its Hessian with respect to the matrix needs.

Let :math:`F(A)=g(\lambda(A))` with a symmetric function g. Its gradient is :math:`V\,\mathrm{diag}(\nabla g)V^H`, and
the derivative of the gradient in the direction Z is, with :math:`\tilde Z=V^HZV`,

.. math:: V\bigl(\mathrm{diag}(\nabla^2g\;\mathrm{diag}\tilde Z)+\Gamma\circ\tilde Z\bigr)V^H,\qquad
          \Gamma_{ij}=\frac{g_i-g_j}{\lambda_i-\lambda_j}\ (i\ne j),\qquad\Gamma_{ii}=0

(Lewis and Sendov, Twice differentiable spectral functions, 2001). At a tie the quotient becomes
:math:`\Gamma_{ij}=g_{ii}-g_{ij}`. Autograd has :math:`\nabla g` with its graph, so products with :math:`\nabla^2g` can
be computed. Let q be a vector of signs. For tied i and j with :math:`q_i=-q_j`

.. math:: \Gamma_{ij}=\frac{(\nabla^2g\,q)_i-(\nabla^2g\,q)_j}{q_i-q_j},

because all other terms cancel by symmetry. With the bits of the index as signs, :math:`\lceil\log_2d\rceil` products
give the number for all pairs.

Near a tie the quotient has an error of :math:`\epsilon\lambda/\text{gap}`. The number from the products differs from
the exact quotient by the order of the squared gap if g is a sum over the eigenvalues, and by the order of the gap
otherwise. It is used where the two agree within the rounding error of the quotient. Elsewhere the gap is large, or g
is not symmetric, as for a single eigenvalue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...dispatch import function
from ...precision import quotient
from ...solvers import Ties, groups
from ..pairwise import differences, floored, identity_mask, leading, norm


class Curvature:
    """Products of the Hessian of g with vectors of signs, computed when they are first needed.

    Args:
        w: eigenvalues or singular values (*, d), the tensor from which ``slopes`` was computed.
        slopes: ∇g (..., *, d), with its graph; several gradients for the same ``w`` may be stacked in front.
    """

    w: Tensor
    slopes: Tensor

    def __init__(self, w: Tensor, slopes: Tensor) -> None:
        self.w, self.slopes = w, slopes

    def pairs(self) -> Tensor:
        """Return g_ii − g_ij (..., *, d, d) as it is for tied i and j."""
        d = self.w.shape[-1]
        result = self.slopes.new_zeros((*self.slopes.shape, d))
        for bit in reversed(range(max(0, d - 1).bit_length())):
            q = self._signs(bit)
            change = differences(self._product(q)) / 2 * q.unsqueeze(-1)
            result = torch.where(q.unsqueeze(-1) == q, result, change)
        return result

    def own(self) -> Tensor:
        """Return g_ii (..., *, d) for a g that is even in its i-th argument, as at a vanishing singular value."""
        q = self._signs(0)
        return self._product(q) * q

    def _signs(self, bit: int) -> Tensor:
        index = torch.arange(self.w.shape[-1], device=self.w.device)
        return 1 - 2 * ((index >> bit) & 1).to(self.slopes.dtype)

    def _product(self, q: Tensor) -> Tensor:
        """Return ∇²g q (..., *, d), zero if the slopes do not depend on ``w``."""
        if not self.slopes.requires_grad or not self.slopes.numel():
            return torch.zeros_like(self.slopes)
        stacked = self.slopes.shape[: max(0, self.slopes.dim() - self.w.dim())]
        if not stacked:
            return self._pulled(q.expand(self.slopes.shape))
        one_by_one = torch.eye(stacked.numel(), dtype=q.dtype, device=q.device)
        places = one_by_one.view(-1, *stacked, *[1] * self.w.dim())
        products = [self._pulled((place * q).expand(self.slopes.shape)) for place in places]
        return torch.stack(products).view(*stacked, *self.w.shape)

    def _pulled(self, direction: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(
            self.slopes,
            self.w,
            direction,
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        return torch.zeros_like(self.w) if found is None else found


def divided_slopes(w: Tensor, curvature: Curvature) -> Tensor:
    """Return Γ (..., *, d, d).

    Args:
        w: the values (*, d); their graph may differ from the graph of ``curvature``, for third derivatives.
        curvature: of the loss.
    """
    slopes, eps = curvature.slopes, torch.finfo(w.dtype).eps
    gap, rise, size = differences(w), differences(slopes), floored(w.detach())
    resolved = gap.abs() > 64 * eps * size
    near = (gap.abs() <= eps**0.25 * size) & ~identity_mask(w)
    divided = quotient(rise, gap, resolved)
    if function.eager(w, slopes) and not bool(near.any()):
        return divided
    tied = curvature.pairs()
    noise = 4 * eps * (_sums(slopes.abs()) + tied.abs() * leading(w))
    smooth = (rise - tied * gap).detach().abs() <= noise.detach()
    return torch.where(near & (smooth | ~resolved), tied, divided)


def _sums(x: Tensor) -> Tensor:
    return x.unsqueeze(-1) + x.unsqueeze(-2)


def between(w: Tensor, slopes: Tensor, changes: tuple[Tensor, Tensor], numbers: Tensor, ties: Ties) -> Tensor:
    """Return Γ (..., *, d, d) without what the rotation of the basis within groups of tied values gives.

    Args:
        w, slopes: values and ∇g.
        changes: the derivatives of both in the direction, in the rotated basis.
        numbers: of the groups (*, d).
        ties: what they consist of.
    """
    same, tied = (x.unsqueeze(-1) == x.unsqueeze(-2) for x in (numbers, groups(w.detach(), Ties.ROUNDING)))
    gamma = quotient(differences(slopes), differences(w), ~(same | tied))
    return gamma + _excess(w, slopes, changes, same, tied) if ties is Ties.NEAR else gamma


def _excess(w: Tensor, slopes: Tensor, changes: tuple[Tensor, Tensor], same: Tensor, tied: Tensor) -> Tensor:
    """Return what Γ (..., *, d, d) has within groups of nearly tied values beyond what the rotation of a basis gives.

    The rotation gives every pair of a group the same number, which is right for a symmetric g: the change of ∇g divided
    by the change of the values. Returns how far the quotients differ from that number beyond rounding error.

    Args:
        w, slopes: values and ∇g.
        changes: the derivatives of both in the direction, in the rotated basis.
        same: mask (*, d, d) of the pairs in one group.
        tied: mask (*, d, d) of the pairs that are equal up to rounding error; they have no quotient.
    """
    eps, share = torch.finfo(w.dtype).eps, same.to(w.dtype)
    share = share / share.sum(-1, keepdim=True)
    x, y = (c - (share @ c.unsqueeze(-1)).squeeze(-1) for c in changes)
    square, product = ((share @ z.unsqueeze(-1)).squeeze(-1) for z in (x * x, x * y))
    slope = quotient(product, square, square > 0).detach().unsqueeze(-1)
    gap, rise = differences(w), differences(slopes)
    beyond = rise - slope * gap
    noise = (
        64 * eps * (slopes.abs().unsqueeze(-1) + slopes.abs().unsqueeze(-2) + slope.abs() * norm(w)[..., None, None])
    )
    return quotient(beyond, gap, same & ~tied & (beyond.abs() > noise))


def mapped(w: Tensor, slopes: Tensor, of_w: int | None, of_slopes: int | None) -> tuple[Tensor, Tensor, int]:
    """Place the dimension that torch.func.vmap maps over such that ``w`` (*, d) and ``slopes`` (..., *, d) broadcast.

    The mapped dimension becomes the first of ``w``. Returns ``w`` itself if possible: autograd would treat a view as a
    different tensor.

    Args:
        w, slopes: with the mapped dimension.
        of_w, of_slopes: its position, None if there is none.

    Returns:
        both tensors, and the position of the mapped dimension in what is computed from them.
    """
    stacked = slopes.dim() - (of_slopes is not None) - w.dim() + (of_w is not None)
    slopes = slopes.unsqueeze(stacked) if of_slopes is None else slopes.movedim(of_slopes, stacked)
    return (w.movedim(of_w, 0) if of_w else w), slopes, stacked
