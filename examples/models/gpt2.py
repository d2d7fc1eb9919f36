"""GPT-2 (Radford et al., 2019) on random tokens; `GPT(**SMALL)` has the shape of GPT-2 small.

python examples/models/gpt2.py
"""

import math

import tenon as torch

nn, F = torch.nn, torch.nn.functional

SMALL = {"vocabulary": 50257, "context": 1024, "dim": 768, "heads": 12, "depth": 12}
TINY = {"vocabulary": 97, "context": 32, "dim": 48, "heads": 4, "depth": 3}


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        self.heads, self.dim = heads, dim

    def forward(self, x):
        batch, length, dim = x.size()
        q, k, v = self.c_attn(x).split(self.dim, dim=2)
        q, k, v = (t.view(batch, length, self.heads, dim // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.attn = CausalSelfAttention(dim, heads)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(dim, 4 * dim), "c_proj": nn.Linear(4 * dim, dim)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, dim, heads, depth):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, dim)
        self.wpe = nn.Embedding(context, dim)
        self.h = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            torch.nn.init.normal_(
                p, 0.0, 0.02 / (math.sqrt(2 * depth) if name.endswith("c_proj.weight") else 1)
            )

    def forward(self, tokens):
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = self.wte(tokens) + self.wpe(places)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            logits = self(tokens[:, -self.wpe.num_embeddings :])[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens


def make(shape=TINY):
    return GPT(**shape)


def batch(step, shape=TINY, length=24):
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(shape["vocabulary"], (2, length + 1), generator=draw)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model, batch):
    tokens, targets = batch
    logits = model(tokens)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)


def train(model, steps, batch=batch):
    optimizer, losses = optimizer_of(model), []
    for step in range(steps):
        loss = loss_of(model, batch(step))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    model = make()
    print(*(f"{loss:.4f}" for loss in train(model, 10)))
    print(model.generate(torch.zeros(1, 1, dtype=torch.long), 12).tolist())
