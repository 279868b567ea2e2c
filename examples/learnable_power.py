"""Learn the exponent of a matrix power: networks that pool A^p do not have to fix p = 1/2."""

import torch

import spectralgrad as sg

torch.manual_seed(0)
features = torch.randn(64, 6, 20, dtype=torch.float64)
covariances = sg.covariance(features, eps=1e-3)
target = sg.matrix_power(covariances, 0.3)  # what some teacher produced

p = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.SGD([p], lr=2.0)
for step in range(41):
    error = (sg.matrix_power(covariances, p) - target).square().mean()
    if step % 10 == 0:
        print(f"step {step:2d}   loss {error.item():.2e}   p = {p.item():.8f}")
    optimizer.zero_grad()
    error.backward()
    optimizer.step()

identity = torch.eye(6, dtype=torch.float64).requires_grad_()
(inside,) = torch.autograd.grad(sg.matrix_power(identity, p.detach()).sum(), identity)
print(f"gradient of the sum at the identity, where all eigenvalues tie: every entry {inside.mean():.8f}")
