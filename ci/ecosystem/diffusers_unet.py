"""Owns: diffusers: a UNet step with its schedulers, trained and sampled."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from torch.nn import functional as F

from ci.ecosystem.harness import case, compare, main, train


def _unet(device: str) -> Any:
    torch.manual_seed(0)
    made = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )
    return made.to(device)


@case("UNet2DModel with DDPM: train")
def learn() -> None:
    def run(device: str) -> Any:
        model, scheduler = _unet(device), DDPMScheduler(num_train_timesteps=20)
        generator = torch.Generator(device).manual_seed(3)
        images = torch.randn(2, 3, 16, 16, device=device, generator=generator)
        noise = torch.randn(images.shape, device=device, generator=generator)
        steps = torch.randint(0, 20, (2,), device=device, generator=generator)
        noisy = scheduler.add_noise(images, noise, steps)
        return train(model, lambda: F.mse_loss(model(noisy, steps).sample, noise))

    compare(run, 1e-3, 1e-4)


def _add_sampler(name: str, kind: Any) -> None:
    @case(f"UNet2DModel with {name}: sample")
    def sample() -> None:
        def run(device: str) -> Any:
            model, scheduler = _unet(device).eval(), kind(num_train_timesteps=20)
            scheduler.set_timesteps(4, device=device)
            generator = torch.Generator(device).manual_seed(3)
            image = torch.randn(1, 3, 16, 16, device=device, generator=generator)
            image = image * scheduler.init_noise_sigma
            with torch.no_grad():
                for step in scheduler.timesteps:
                    scaled = scheduler.scale_model_input(image, step)
                    noise = model(scaled, step).sample
                    options = {} if name == "DDIM" else {"generator": generator}
                    image = scheduler.step(noise, step, image, **options).prev_sample
            return image

        compare(run, 1e-3, 1e-3)


for _name, _kind in (
    ("DDPM", DDPMScheduler),
    ("DDIM", DDIMScheduler),
    ("Euler", EulerDiscreteScheduler),
):
    _add_sampler(_name, _kind)


@case("UNet2DConditionModel with cross attention: train")
def condition() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        model = UNet2DConditionModel(
            sample_size=8,
            layers_per_block=1,
            block_out_channels=(16, 32),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=16,
            norm_num_groups=8,
            attention_head_dim=8,
        ).to(device)
        latents, text = torch.randn(2, 4, 8, 8).to(device), torch.randn(2, 5, 16).to(device)
        steps = torch.tensor([3, 7], device=device)
        return train(model, lambda: model(latents, steps, text).sample.square().mean())

    compare(run, 1e-3, 1e-4)


@case("AutoencoderKL: encode, sample, decode")
def autoencoder() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        model = AutoencoderKL(block_out_channels=(16,), norm_num_groups=8, latent_channels=4)
        model = model.to(device).eval()
        image = torch.randn(1, 3, 16, 16).to(device)
        generator = torch.Generator(device).manual_seed(3)
        with torch.no_grad():
            latents = model.encode(image).latent_dist.sample(generator)
            return [latents, model.decode(latents).sample]

    compare(run, 1e-3, 1e-4)


if __name__ == "__main__":
    main(["diffusers"])
