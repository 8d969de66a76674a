"""Settings: typed dataclasses, YAML files and the command line; what reads and explains them."""

from mmrl.config.checks import ConfigError, NotHereError, check, check_choice, import_extra
from mmrl.config.constraints import Settings, above, at_least, filled, one_of
from mmrl.config.merging import build_options, merge
from mmrl.config.settings import load_config, read_key, to_plain, to_yaml
