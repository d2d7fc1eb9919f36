"""Fuse each convolution with the batch norm after it: a pass over a traced model.

    python examples/fx_conv_bn_fusion.py

PyTorch's program for ``torch.fx``, with another import at the top. In evaluation a batch norm multiplies by
constants and adds constants, which can be folded into the weight and bias of the convolution before it.
"""

import copy

import tenon as torch
import tenon.fx as fx
from tenon import nn


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.conv2 = nn.Conv2d(8, 4, 1)
        self.bn2 = nn.BatchNorm2d(4)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.block(x) + x
        return self.bn2(self.conv2(x))


def parent_of(path):
    """Split the path of a module into its parent's and its name."""
    *parent, name = path.rsplit(".", 1)
    return parent[0] if parent else "", name


def fuse(model):
    """Return a copy of ``model`` without the batch norms that follow a convolution."""
    traced = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op != "call_module" or type(modules[node.target]) is not nn.BatchNorm2d:
            continue
        before = node.args[0]
        if before.op != "call_module" or type(modules[before.target]) is not nn.Conv2d:
            continue
        if len(before.users) > 1:  # somebody else needs the output of the convolution
            continue
        fused = nn.utils.fusion.fuse_conv_bn_eval(modules[before.target], modules[node.target])
        parent, name = parent_of(before.target)
        modules[before.target] = fused
        setattr(modules[parent], name, fused)
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced


def main():
    torch.manual_seed(0)
    model = ConvNet()
    with torch.no_grad():
        for _ in range(3):  # so that there are statistics
            model(torch.randn(8, 3, 16, 16))
    model.eval()
    fused = fuse(model)
    print(fused.code)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)
    count = sum(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    print(f"{count} batch norms are left, and the results agree")


if __name__ == "__main__":
    main()
