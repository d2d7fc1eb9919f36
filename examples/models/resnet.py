"""ResNet-18 (He et al., 2016) on random images; `width=64` is the paper's.

python examples/models/resnet.py
"""

import tenon as torch

nn, F = torch.nn, torch.nn.functional


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += identity
        return self.relu(x)


class ResNet(nn.Module):
    def __init__(self, blocks=(2, 2, 2, 2), width=64, classes=1000):
        super().__init__()
        self.inputs = width
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for i, count in enumerate(blocks):
            setattr(self, f"layer{i + 1}", self.stage(width * 2**i, count, 1 if i == 0 else 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(self.inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)

    def stage(self, outputs, count, stride):
        layers = [BasicBlock(self.inputs, outputs, stride)]
        self.inputs = outputs
        layers += [BasicBlock(outputs, outputs, 1) for _ in range(1, count)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def make():
    return ResNet(width=8, classes=10)


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 64, 64, generator=draw), torch.randint(10, (8,), generator=draw)


def loss_of(model, batch):
    images, labels = batch
    return F.cross_entropy(model(images), labels, label_smoothing=0.1)


def optimizer_of(model):
    # At a rate of 0.005 rounding grows a thousandfold within ten steps: batches are of eight random images.
    return torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-4, nesterov=True)


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
