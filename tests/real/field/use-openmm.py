# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# OpenMM: arrays of their own size, a context of the driver for each simulation, and everything gone with it.
import openmm
from common import done, equal, ledger, say, step

ATOMS = 20000


def held():
    return ledger()["allocated_bytes"]["current"]


def simulation():
    system, force = openmm.System(), openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.PME)
    for _ in range(ATOMS):
        system.addParticle(18.0)
        force.addParticle(0.0, 0.3, 0.5)
    system.setDefaultPeriodicBoxVectors(openmm.Vec3(6, 0, 0), openmm.Vec3(0, 6, 0), openmm.Vec3(0, 0, 6))
    system.addForce(force)
    return openmm.Context(system, openmm.VerletIntegrator(0.002), openmm.Platform.getPlatform("CUDA"))


first = simulation()
step("a simulation")
one = held()
say("one holds", one)
first.setPositions([openmm.Vec3(at % 27, at // 27 % 27, at // 729) * 0.22 for at in range(ATOMS)])
first.getIntegrator().step(2)
step("two steps")
say("after two steps", held())
second = simulation()
step("a second simulation")
equal("it holds as much", held(), 2 * one + 4)
equal("each has a context of the driver", ledger()["contexts"], 2)
first.reinitialize()
step("reinitialized")
# What was there goes before the new one comes.
say("the most", ledger()["allocated_bytes"]["peak"])
del first
step("one is gone")
equal("the other", held(), one)
del second
step("both gone")
equal("the end", held(), 0)
equal("no context", ledger()["contexts"], 0)
done()
