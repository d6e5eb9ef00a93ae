# cause: logging-every-step
import torch
from tqdm import tqdm

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(8, 8)
bar = tqdm(range(100_000), miniters=1, mininterval=0, ncols=200)
for _step in bar:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    for name, weight in model.named_parameters():
        bar.set_postfix({name: weight.norm().item(), "loss": loss.item()}, refresh=True)
        bar.set_description(f"loss {loss.item():.4f}", refresh=True)
