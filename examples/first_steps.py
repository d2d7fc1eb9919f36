"""Train a net to add four numbers, save it as a PyTorch file and load it again.

python examples/first_steps.py
"""

import tenon as torch
from tenon import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

for step in range(300):
    x = torch.randn(64, 4)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}")

print(f"final loss {loss.item():.4f}")
torch.save(net.state_dict(), "first_steps.pt")

again = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
print(again.load_state_dict(torch.load("first_steps.pt")))
x = torch.ones(1, 4)
print("1 + 1 + 1 + 1 is about", round(again(x).item(), 2))
