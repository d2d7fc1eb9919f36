"""Train as ``sharded_digest.py`` does, from step FIRST to LAST in one way, and print the digest of the weights.

resumed_digest.py zero3 0 10 --save FOLDER
resumed_digest.py zero2 10 20 --load FOLDER
"""

import sys

import numpy as np
import sharded_digest
from sharded_digest import WAYS, digest, train

import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint
from tenon.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

way, first, last, *place = sys.argv[1:]
build = sharded_digest.build


def build_without_unused():
    """A model whose optimizer has a state of every parameter that it trains."""
    model = build()
    model.never.requires_grad_(False)
    return model


sharded_digest.build = build_without_unused
model = WAYS[way]()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
if place[:1] == ["--load"]:
    checkpoint.load(state, checkpoint_id=place[1])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
train(model, optimizer, int(first), int(last), model)
if place[:1] == ["--save"]:
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    checkpoint.save(state, checkpoint_id=place[1])
found = digest(model, np.float64(0))
if dist.get_rank() == 0:
    print(way, found)
