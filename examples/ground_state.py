"""Learn a potential from a ground state: eigsh on a Hamiltonian given by its products, with the exact gradient."""

import torch

import spectralgrad as sg

SIDE = 24
X, Y = torch.meshgrid(*[torch.linspace(-1, 1, SIDE, dtype=torch.float64)] * 2, indexing="ij")
TERMS = torch.stack([X**2, X, Y, Y**2]).flatten(1)


def density(weights: torch.Tensor) -> torch.Tensor:
    """The probability (n,) of the ground state of −Δ + potential on a grid; no matrix is formed."""
    potential = (weights @ TERMS).unsqueeze(-1)

    def product(V: torch.Tensor) -> torch.Tensor:
        grid = torch.nn.functional.pad(V.reshape(SIDE, SIDE, -1), (0, 0, 1, 1, 1, 1))
        around = grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + grid[1:-1, :-2]
        return (4 + potential) * V - around.reshape(V.shape)

    return sg.eigsh(product, 1, largest=False, size=SIDE**2, dtype=torch.float64).eigenvectors[:, 0].square()


wanted = density(torch.tensor([0.8, -0.4, 0.2, 0.5], dtype=torch.float64))
weights = torch.full((4,), 0.3, dtype=torch.float64, requires_grad=True)
optimiser = torch.optim.LBFGS([weights], max_iter=40, tolerance_change=1e-12, line_search_fn="strong_wolfe")


def loss() -> torch.Tensor:
    """The mean squared difference of the densities; a call leaves its gradient in the weights."""
    optimiser.zero_grad()
    (value := ((density(weights) - wanted) / wanted.mean()).square().mean()).backward()
    return value


print(f"loss {optimiser.step(loss).item():.1e}, later {loss().item():.1e}")
print("learnt 0.8, -0.4, 0.2, 0.5 as", *[round(value, 4) for value in weights.tolist()])
