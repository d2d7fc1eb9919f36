# ruff: noqa - written as such scripts are, not as this repository is
"""A residual network and a vision transformer in the style of public collections of image models."""

import math
from collections import OrderedDict
from functools import partial
from typing import Callable, List, Optional, Tuple, Type, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.checkpoint
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def drop_path(x: Tensor, drop_prob: float = 0.0, training: bool = False) -> Tensor:
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    random_tensor = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep_prob)
    return x * random_tensor.div_(keep_prob)


class DropPath(nn.Module):
    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return drop_path(x, self.drop_prob, self.training)

    def extra_repr(self):
        return f"drop_prob={round(self.drop_prob, 3):0.3f}"


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, ratio: float = 0.25) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, max(1, int(channels * ratio)), kernel_size=1)
        self.act = nn.SiLU(inplace=True)
        self.fc2 = nn.Conv2d(max(1, int(channels * ratio)), channels, kernel_size=1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * self.fc2(self.act(self.fc1(s))).sigmoid()


class Bottleneck(nn.Module):
    expansion: int = 4

    def __init__(
        self,
        inplanes,
        planes,
        stride=1,
        downsample: Optional[nn.Module] = None,
        act_layer: Type[nn.Module] = nn.ReLU,
        norm_layer: Callable[..., nn.Module] = nn.BatchNorm2d,
        drop: float = 0.0,
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=1, bias=False)
        self.bn1 = norm_layer(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=stride, padding=1, groups=2, bias=False)
        self.bn2 = norm_layer(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, kernel_size=1, bias=False)
        self.bn3 = norm_layer(planes * self.expansion)
        self.se = SqueezeExcite(planes * self.expansion)
        self.act = act_layer(inplace=True)
        self.downsample = downsample
        self.drop_path = DropPath(drop) if drop > 0.0 else nn.Identity()

    def zero_init_last(self):
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.act(self.bn1(self.conv1(x)))
        x = self.act(self.bn2(self.conv2(x)))
        x = self.drop_path(self.se(self.bn3(self.conv3(x))))
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x += shortcut
        return self.act(x)


class ResNet(nn.Module):
    def __init__(self, layers: List[int], num_classes: int = 10, width: int = 4, drop: float = 0.0):
        super().__init__()
        self.inplanes = width
        self.stem = nn.Sequential(
            OrderedDict(
                [
                    ("conv", nn.Conv2d(3, width, kernel_size=3, stride=2, padding=1, bias=False)),
                    ("bn", nn.BatchNorm2d(width)),
                    ("act", nn.ReLU(inplace=True)),
                    ("pool", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)),
                ]
            )
        )
        rates = [r.tolist() for r in torch.linspace(0, drop, sum(layers)).split(layers)]
        for i, (count, rate) in enumerate(zip(layers, rates)):
            self.add_module(f"layer{i + 1}", self._make_layer(width * 2**i, count, 1 + (i > 0), rate))
        self.num_features = self.inplanes
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.num_features, num_classes)
        for n, m in self.named_modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        for m in self.modules():
            if hasattr(m, "zero_init_last"):
                m.zero_init_last()

    def _make_layer(self, planes, blocks, stride, rates):
        downsample = nn.Sequential(
            nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False)
            if stride != 1
            else nn.Identity(),
            nn.Conv2d(self.inplanes, planes * Bottleneck.expansion, 1, bias=False),
            nn.BatchNorm2d(planes * Bottleneck.expansion),
        )
        layers = [Bottleneck(self.inplanes, planes, stride, downsample, drop=rates[0])]
        self.inplanes = planes * Bottleneck.expansion
        layers += [Bottleneck(self.inplanes, planes, drop=rates[i]) for i in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        for name in ("layer1", "layer2"):
            x = getattr(self, name)(x)
        x = F.dropout(self.global_pool(x).flatten(1), p=0.1, training=self.training)
        return self.fc(x)


class Attention(nn.Module):
    fused_attn: bool

    def __init__(self, dim: int, num_heads: int = 4, qk_norm: bool = False, norm_layer=nn.LayerNorm):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = self.head_dim**-0.5
        self.fused_attn = True
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.q_norm = norm_layer(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = norm_layer(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
            x = self.attn_drop(attn) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class LayerScale(nn.Module):
    def __init__(self, dim, init_values=1e-2):
        super().__init__()
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


class Block(nn.Module):
    def __init__(self, dim, drop_path, norm_layer):
        super().__init__()
        self.norm1, self.attn, self.ls1 = norm_layer(dim), Attention(dim, qk_norm=True), LayerScale(dim)
        self.norm2, self.ls2 = norm_layer(dim), LayerScale(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * 2), nn.GELU(approximate="tanh"), nn.Linear(dim * 2, dim)
        )
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x):
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


def resample_abs_pos_embed(posemb: Tensor, new_size: Tuple[int, int], prefix: int = 1) -> Tensor:
    head, grid = posemb[:, :prefix], posemb[:, prefix:]
    side = int(math.sqrt(grid.shape[1]))
    grid = grid.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=new_size, mode="bicubic", antialias=True)
    return torch.cat([head, grid.permute(0, 2, 3, 1).reshape(1, -1, posemb.shape[-1])], dim=1)


class VisionTransformer(nn.Module):
    def __init__(self, img_size: Union[int, Tuple[int, int]] = 16, patch=4, dim=32, depth=2, num_classes=10):
        super().__init__()
        norm_layer = partial(nn.LayerNorm, eps=1e-6)
        self.grad_checkpointing = True
        self.patch_embed = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (img_size // patch) ** 2 + 1, dim) * 0.02)
        dpr = [x.item() for x in torch.linspace(0, 0.2, depth)]
        self.blocks = nn.Sequential(*[Block(dim, dpr[i], norm_layer) for i in range(depth)])
        self.norm = norm_layer(dim)
        self.head = nn.Linear(dim, num_classes) if num_classes > 0 else nn.Identity()
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def no_weight_decay(self):
        return {"pos_embed", "cls_token"}

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        for block in self.blocks:
            if self.grad_checkpointing and self.training:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(self.norm(x)[:, 0])


class Mean:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum, self.count = self.sum + value * n, self.count + n


def accuracy(output, target, topk=(1, 3)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.reshape(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk]


def param_groups(model, weight_decay, skip=()):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        (no_decay if p.ndim <= 1 or name.endswith(".bias") or name in skip else decay).append(p)
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": weight_decay}]


torch.manual_seed(42)
images, labels = torch.randn(24, 3, 16, 16), torch.randint(0, 10, (24,))
images = (images - images.mean(dim=(0, 2, 3), keepdim=True)) / images.std(dim=(0, 2, 3), keepdim=True)
loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=False, drop_last=True)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for model in (ResNet([2, 1], drop=0.1), VisionTransformer()):
    skip = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    optimizer = optim.AdamW(param_groups(model, 0.05, skip), lr=2e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=1e-5)
    for epoch in range(2):
        model.train()
        for step, (input, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(input), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
            optimizer.step()
            scheduler.step()
            print(f"loss {epoch} {step} {loss.item():.4f} {optimizer.param_groups[0]['lr']:.6f}")
    model.eval()
    top1 = Mean()
    with torch.inference_mode():
        for input, target in loader:
            top1.update(accuracy(model(input), target)[1].item(), input.size(0))
    print(f"accuracy {top1.sum / top1.count:.1f} {sum(m.numel() for m in model.parameters()):,}")
resized = resample_abs_pos_embed(model.pos_embed.detach(), (6, 6))
print(f"resized {tuple(resized.shape)} {resized.square().mean().sqrt().item():.4f}")
