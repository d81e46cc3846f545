"""The groups of flags that commands share, gathered from the files beside this one.

Keys of a group's result are fields of `stages.options.Options` (or its parts) and of
`cli.show.Show`. A flag that was not given is left out, so that each default has one home: the
options' dataclass.
"""

from __future__ import annotations

from tvmscope.cli.flags.accuracy import tolerances as tolerances
from tvmscope.cli.flags.compilation import compilation as compilation
from tvmscope.cli.flags.measurement import measurement as measurement
from tvmscope.cli.flags.output import place as place
from tvmscope.cli.flags.output import planning as planning
from tvmscope.cli.flags.output import results as results
from tvmscope.cli.flags.output import speech as speech
from tvmscope.cli.flags.subject import Model as Model
from tvmscope.cli.flags.subject import Models as Models
from tvmscope.cli.flags.subject import backends as backends
from tvmscope.cli.flags.subject import comparison as comparison
from tvmscope.cli.flags.subject import cores as cores
from tvmscope.cli.flags.subject import device as device
from tvmscope.cli.flags.subject import inputs as inputs
from tvmscope.cli.flags.subject import network as network
from tvmscope.cli.flags.subject import shapes as shapes
from tvmscope.cli.flags.subject import target as target
from tvmscope.cli.flags.subject import varying as varying
from tvmscope.cli.flags.tuning import database as database

SUBJECT = (target, device, cores, shapes, network, inputs)
"""The flags of every command that compiles a model: which model, and for which machine."""
MEASURING = (
    *SUBJECT,
    compilation,
    database,
    measurement,
    comparison,
    tolerances,
    place,
    speech,
    results,
    planning,
)
"""The flags of every command that measures a model."""
