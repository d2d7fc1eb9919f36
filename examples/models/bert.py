"""BERT (Devlin et al., 2019) predicts masked tokens; `Bert()` is BERT-tiny.

python examples/models/bert.py
"""

import tenon as torch

nn, F = torch.nn, torch.nn.functional

PADDING, HIDDEN = 0, 1


class Embeddings(nn.Module):
    def __init__(self, vocabulary, context, dim):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, dim, padding_idx=PADDING)
        self.position_embeddings = nn.Embedding(context, dim)
        self.token_type_embeddings = nn.Embedding(2, dim)
        self.LayerNorm = nn.LayerNorm(dim, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(context).unsqueeze(0), persistent=False)

    def forward(self, tokens, types):
        places = self.position_embeddings(self.position_ids[:, : tokens.shape[1]])
        return self.LayerNorm(self.word_embeddings(tokens) + places + self.token_type_embeddings(types))


class Bert(nn.Module):
    def __init__(self, vocabulary=30522, context=512, dim=128, heads=2, depth=2):
        super().__init__()
        self.embeddings = Embeddings(vocabulary, context, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, "gelu", 1e-12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.pooler = nn.Linear(dim, dim)
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.02)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            module.weight.data[module.padding_idx].zero_()

    def forward(self, tokens, types):
        x = self.encoder(self.embeddings(tokens, types), src_key_padding_mask=tokens.eq(PADDING))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        words = self.embeddings.word_embeddings.weight
        return self.transform(x) @ words.t() + self.bias, pooled


def make():
    return Bert(vocabulary=61, context=16, dim=32, heads=2, depth=2)


def batch(step):
    """Pairs of segments of different lengths, with about a fifth of the tokens masked."""
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(2, 61, (4, 12), generator=draw)
    lengths = torch.tensor([12, 9, 12, 7])
    outside = torch.arange(12)[None, :] >= lengths[:, None]
    tokens = tokens.masked_fill(outside, PADDING)
    hidden = (torch.rand(4, 12, generator=draw) < 0.2) & ~outside
    hidden[:, 1] = True
    types = (torch.arange(12) >= 6).long().expand(4, -1)
    labels = torch.where(hidden, tokens, torch.full_like(tokens, -100))
    return tokens.masked_fill(hidden, HIDDEN), types, labels


def loss_of(model, batch):
    tokens, types, labels = batch
    logits, pooled = model(tokens, types)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + 0.01 * pooled.pow(2).mean()


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


def train(model, steps):
    optimizer, losses = optimizer_of(model), []
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    for step in range(steps):
        loss = loss_of(model, batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    print(*(f"{loss:.4f}" for loss in train(make(), 10)))
