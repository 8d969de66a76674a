"""What a run, its dry run and its probe check before anything loads."""

from contextlib import nullcontext

from mmrl.preflight.reward_probe import offline
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task


def check_run(config: RLConfig, world_size: int = 1, dry: bool = False) -> dict[str, Task]:
    """Check the batch geometry, the checkpoints of the policy, its tasks, and their prompts.

    Args:
        config: of the run.
        world_size: number of processes.
        dry: whether nothing is downloaded; a task whose prompts are only on the hub has none.

    Returns:
        The tasks by name, with their prompts; their rewards are not built.

    Raises:
        ConfigError, FileNotFoundError, ValueError: what the run cannot start with.
    """
    config.check_geometry(world_size)
    config.check_model()
    with offline() if dry else nullcontext():
        tasks = {name: Task(name, options, dry) for name, options in config.tasks.items()}
    for task in tasks.values():
        task.check_prompts(config.model)
    return tasks
