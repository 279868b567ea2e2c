"""Newton–Schulz first, SVD for the last stage, with a stop and a resume in the middle of the warm-up."""

import torch

import spectralgrad as sg


def start():
    """A model, its optimizer, scheduler and switch."""
    torch.manual_seed(0)
    whiten = sg.nn.DecorrelatedBatchNorm1d(4)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), whiten, torch.nn.Tanh(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
    return model, optimizer, scheduler, sg.training.HybridSwitch(model, scheduler, warmup_epochs=2)


def train(epochs, model, optimizer, *drivers):
    """One batch per epoch; print the method and the learning rate."""
    for epoch in epochs:
        optimizer.zero_grad()
        model(torch.arange(192.0).sin().reshape(32, 6)).logsumexp(1).mean().backward()
        print(epoch, model[1].method.name, f"{optimizer.param_groups[0]['lr']:g}")
        for part in (optimizer, *drivers):
            part.step()


through, stopped, resumed = start(), start(), start()
train(range(8), *through)
train(range(5), *stopped)
_ = [part.load_state_dict(saved.state_dict()) for part, saved in zip(resumed, stopped, strict=True)]
train(range(5, 8), *resumed)
print("the same weights:", all(map(torch.equal, through[0].parameters(), resumed[0].parameters())))
