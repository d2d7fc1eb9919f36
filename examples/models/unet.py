"""U-Net (Ronneberger et al., 2015) segments discs in noise.

python examples/models/unet.py
"""

import tenon as torch

nn, F = torch.nn, torch.nn.functional


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, inputs // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(inputs, outputs)

    def forward(self, x, skip):
        x = self.up(x)
        rows, columns = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, channels=3, classes=2, width=64, depth=4):
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.inc = DoubleConv(channels, width)
        self.downs = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), DoubleConv(w, 2 * w)) for w in widths[:-1])
        self.ups = nn.ModuleList(Up(2 * w, w) for w in reversed(widths[:-1]))
        self.outc = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)


def make():
    return UNet(channels=1, classes=1, width=4, depth=3)


def batch(step):
    draw = torch.Generator().manual_seed(step)
    rows, columns = torch.meshgrid(torch.arange(30), torch.arange(27), indexing="ij")
    centre = torch.randint(8, 20, (3, 2, 1, 1), generator=draw)
    distance = (rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2
    masks = (distance < 36).float().unsqueeze(1)
    return masks + 0.5 * torch.randn(masks.shape, generator=draw), masks


def loss_of(model, batch):
    images, masks = batch
    logits = model(images)
    found = torch.sigmoid(logits)
    overlap = 2 * (found * masks).sum((1, 2, 3)) / (found.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1e-6)
    return F.binary_cross_entropy_with_logits(logits, masks) + (1 - overlap).mean()


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def train(model, steps):
    optimizer, losses = optimizer_of(model), []
    for step in range(steps):
        loss = loss_of(model, batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    print(*(f"{loss:.4f}" for loss in train(make(), 10)))
