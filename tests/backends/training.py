"""A few steps of training, the same on every device."""

import tenon
from tenon import nn, optim
from tenon.nn import functional as F


class Net(nn.Module):
    """A small classifier with all kinds of state."""

    def __init__(self):
        super().__init__()
        # A bias before batch norm has no gradient but rounding, which Adam would magnify.
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.5},
    "Adagrad": {"lr": 0.05},
}


def train(device, optimizer="Adam", steps=4):
    """Losses, the trained model and its optimizer."""
    tenon.manual_seed(1)
    model = Net().to(device)
    optimiser = getattr(optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    schedule = optim.lr_scheduler.StepLR(optimiser, step_size=2, gamma=0.5)
    losses = []
    for _ in range(steps):
        x, y = tenon.randn(6, 1, 8, 8).to(device), tenon.randint(0, 3, (6,)).to(device)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return losses, model, optimiser
