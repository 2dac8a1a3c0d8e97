"""Training with NumPy alone, in FP64, dense with masks. Nothing here imports gbdnn."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Oracle:
    """A network of dense layers with masks, and an optimizer."""

    W: list
    b: list
    clip: list
    relu: list
    optimizer: str = "sgd"
    rate: float = 0.05
    momentum: float = 0.9
    decay: float = 0.0
    norm: float = np.inf
    masks: list = field(init=False)

    def __post_init__(self):
        self.W = [np.array(W, np.float64) for W in self.W]
        self.b = [np.array(b, np.float64) for b in self.b]
        self.masks = [W != 0 for W in self.W]
        self.first = [np.zeros_like(p) for p in (*self.W, *self.b)]
        self.second = [np.zeros_like(p) for p in (*self.W, *self.b)]
        self.steps = 0

    def activations(self, X):
        found = [np.asarray(X, np.float64)]
        for k in range(len(self.W)):
            Z = found[-1] @ self.W[k] + self.b[k]
            if self.relu[k]:
                Z = np.maximum(Z, 0)
            if self.clip[k] is not None:
                Z = np.minimum(Z, self.clip[k])
            found.append(Z)
        return found

    def loss_and_gradients(self, X, y, weights=None):
        weights = np.ones(len(X)) if weights is None else weights
        Y = self.activations(X)
        Z, n = Y[-1], len(X)
        if y.ndim == 1:
            Z = Z - Z.max(1, keepdims=True)
            P = np.exp(Z)
            losses = np.log(P.sum(1)) - Z[np.arange(n), y]
            D = (P / P.sum(1, keepdims=True) - np.eye(Z.shape[1])[y]) / n
        else:
            losses = ((Z - y) ** 2).mean(1)
            D = 2 * (Z - y) / Z.size
        losses, D = losses * weights, D * weights[:, None]
        dW, db = [], []
        for k in reversed(range(len(self.W))):
            if self.relu[k]:
                D = D * (Y[k + 1] > 0)
            if self.clip[k] is not None:
                D = D * (Y[k + 1] < self.clip[k])
            dW.insert(0, Y[k].T @ D * self.masks[k])
            db.insert(0, D.sum(0))
            D = D @ self.W[k].T
        return losses, dW, db

    def step(self, X, y, weights=None):
        losses, dW, db = self.loss_and_gradients(X, y, weights)
        total = np.sqrt(sum((g**2).sum() for g in (*dW, *db)))
        dW, db = ([g * min(1, self.norm / max(total, 1e-300)) for g in some] for some in (dW, db))
        self.steps += 1
        layers = len(self.W)
        for n, g in enumerate((*dW, *db)):
            p = self.W[n] if n < layers else self.b[n - layers]
            decay = self.decay if n < layers else 0.0
            m, v = self.first[n], self.second[n]
            if self.optimizer == "adam":
                m[:] = 0.9 * m + 0.1 * g
                v[:] = 0.999 * v + 0.001 * g * g
                mean, square = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
                p -= self.rate * (mean / (np.sqrt(square) + 1e-8) + decay * p)
            else:
                g = g + decay * p
                m[:] = self.momentum * m + g
                p -= self.rate * (g + self.momentum * m if self.optimizer == "nesterov" else m)
        for k, mask in enumerate(self.masks):
            self.W[k] *= mask
        return losses
