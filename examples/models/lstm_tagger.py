"""A bidirectional LSTM predicts the tag of every word; sentences have different lengths.

python examples/models/lstm_tagger.py
"""

import tenon as torch

nn, F = torch.nn, torch.nn.functional
pack, unpack = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence

PADDING, NO_TAG = 0, -100


class Tagger(nn.Module):
    def __init__(self, words=10000, tags=17, dim=100, hidden=200, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=PADDING)
        self.lstm = nn.LSTM(dim, hidden, layers, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, words, lengths):
        packed = pack(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        states, _ = unpack(states, batch_first=True, total_length=words.shape[1])
        return self.out(states)


def make():
    return Tagger(words=50, tags=6, dim=12, hidden=16, layers=2)


def batch(step):
    """Sentences in which a word's tag is determined by the word and the one before it."""
    draw = torch.Generator().manual_seed(step)
    sentences = [torch.randint(1, 50, (length,), generator=draw) for length in (9, 4, 7, 1)]
    words = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PADDING)
    lengths = torch.tensor([len(s) for s in sentences])
    tags = (words + words.roll(1, 1)) % 6
    return words, lengths, tags.masked_fill(words == PADDING, NO_TAG)


def loss_of(model, batch):
    words, lengths, tags = batch
    return F.cross_entropy(model(words, lengths).transpose(1, 2), tags, ignore_index=NO_TAG)


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, steps):
    optimizer, losses = optimizer_of(model), []
    for step in range(steps):
        loss = loss_of(model, batch(step))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    print(*(f"{loss:.4f}" for loss in train(make(), 10)))
