# cause: none
import torch

torch.set_num_threads(1)
real = torch.randn(256, 256)
generator = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
critic = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1))
for_generator = torch.optim.SGD(generator.parameters(), lr=1e-4)
for_critic = torch.optim.SGD(critic.parameters(), lr=1e-4)
for _step in range(100_000):
    fake = generator(torch.randn(256, 64))
    for_critic.zero_grad()
    (critic(fake.detach()).mean() - critic(real).mean()).backward()
    for_critic.step()
    for_generator.zero_grad()
    (-critic(fake).mean()).backward()
    for_generator.step()
