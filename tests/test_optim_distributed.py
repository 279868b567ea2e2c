"""Two processes with DistributedDataParallel: gradients are treated after the reduction, and all ranks agree."""

import csv
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import spectralgrad as sg
from spectralgrad.diagnostics import Monitor
from spectralgrad.optim import ConditioningWarning, NearestOrthogonalGradient, OptimalLearningRate, pre_spectral_layers
from spectralgrad.training import HybridSwitch

from .features import needs
from .forked import Forked
from .small_networks import batch, linear_net

pytestmark = [
    needs("destruction of gloo"),
    pytest.mark.runs,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed"),
]
STEPS = 3


def work(rank, folder):
    warnings.simplefilter("ignore", ConditioningWarning)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    net = DistributedDataParallel(linear_net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9)
    layer = pre_spectral_layers(net, batch(0)[0])["1"].module
    olr = OptimalLearningRate(optimizer, layer)
    NearestOrthogonalGradient(optimizer, layer)
    switch = HybridSwitch(net, decay_epoch=2)
    records, rates, gradients = [], [], []
    with Monitor(net, every=1, csv=f"{folder}/log.csv") as monitor:
        for step in range(STEPS):
            optimizer.zero_grad()
            x, y = batch(10 * step + rank)
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            gradients.append(layer.weight.grad.clone())
            rates.append(olr.rates[0])
            switch.step()
        records = [(r.layer, r.method, r.gradient_norm) for r in monitor.records]
    torch.save([net.module.state_dict(), gradients, rates, records], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def alone():
    """The same by hand: the mean of the two gradients, then the treatments."""
    net = linear_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9)
    OptimalLearningRate(optimizer, net[0])
    switch = HybridSwitch(net, decay_epoch=2)
    gradients = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(2):
            x, y = batch(10 * step + rank)
            (nn.functional.cross_entropy(net(x), y) / 2).backward()
        U, _, Vh = torch.linalg.svd(net[0].weight.grad, full_matrices=False)
        net[0].weight.grad = U @ Vh
        gradients.append(net[0].weight.grad.clone())
        optimizer.step()
        switch.step()
    return net.state_dict(), gradients


def test_ddp(tmp_path):
    code = "import sys; from tests.test_optim_distributed import work; work(int(sys.argv[1]), sys.argv[2])"
    processes = [Forked("-c", code, rank, tmp_path) for rank in range(2)]
    for process in processes:
        said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    (one, g1, rates1, records1), (two, g2, rates2, records2) = (torch.load(tmp_path / f"{r}.pt") for r in range(2))
    state, gradients = alone()
    for name, value in state.items():
        assert torch.equal(one[name], two[name])
        torch.testing.assert_close(one[name], value, rtol=1e-9, atol=1e-9)
    for a, b, c in zip(g1, g2, gradients, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-9, atol=1e-9)
    assert rates1 == rates2
    assert [r[:2] for r in records1] == [("module.1", "newton-schulz")] + [("module.1", "svd-pade")] * 2
    assert records1 != records2  # each process looks at its own batch
    with (tmp_path / "log.csv").open(encoding="utf-8") as file:  # and only the first writes
        written = [float(row["gradient_norm"]) for row in csv.DictReader(file)]
    assert written == [r[2] for r in records1]


def test_sharded_parameters_are_refused():
    class DTensor(nn.Parameter):
        pass

    weight = DTensor(torch.zeros(3, 3))
    with pytest.raises(sg.SpectralError, match="sharded"):
        NearestOrthogonalGradient(torch.optim.SGD([weight], lr=0.1), weight)
