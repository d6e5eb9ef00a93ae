# cause: data-made-in-the-loop
import multiprocessing as mp
import time

import torch


def produce(queue):
    torch.set_num_threads(1)
    while True:
        time.sleep(0.03)
        queue.put(torch.randn(32, 64).tolist())


def main():
    queue = mp.get_context("fork").Queue(maxsize=4)
    producer = mp.get_context("fork").Process(target=produce, args=(queue,), daemon=True)
    producer.start()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for _ in range(100_000):
        batch = queue.get()
        x = torch.tensor(batch)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
