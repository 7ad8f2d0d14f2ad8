"""What a bundle cost, and what its data say to the checklists of venues."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mobench.bundle.contents import Contents, Rows, listed
from mobench.bundle.croissant import origins
from mobench.system.provenance import code


def compute(contents: Contents) -> dict[str, Any]:
    """Returns compute.json: time, memory, machine and precision of each job, as its meta.json has them.

    Core-hours are wall time times threads, of the runs that are in the bundle: what was tried before, and
    what failed, is not in them.
    """
    jobs = {key: _cost(job) for key, job in contents.jobs.items()}
    return {
        "core_hours": sum(job["core_hours"] for job in jobs.values()),
        "gpu_hours": sum(job["gpu_hours"] for job in jobs.values()),
        "wall_hours": sum(job["seconds"] for job in jobs.values()) / 3600,
        "peak_memory_mib": max((job["peak_memory_mib"] or 0.0 for job in jobs.values()), default=0.0),
        "devices": dict(Counter(job["device"] for job in jobs.values())),
        "precisions": dict(Counter(job["precision"] for job in jobs.values())),
        "not_counted": "trials before these runs, failed runs, and the drawing of figures",
        "jobs": jobs,
    }


def _cost(job: Rows) -> dict[str, Any]:
    meta = job.meta
    products = "tf32" if meta.get("tf32") else str(meta.get("precision", "fp32"))
    dtype = str(meta["dtype"])
    return {
        "device": str(meta["device"]),
        "threads": job.threads,
        "jobs_at_once": meta.get("at_once"),
        "seconds": job.seconds,
        "core_hours": job.seconds * job.threads / 3600,
        "gpu_hours": job.gpu_seconds / 3600,
        "peak_memory_mib": meta.get("peak_memory_mib"),
        "peak_gpu_memory_mib": meta.get("peak_gpu_memory_mib"),
        "precision": dtype if products == "fp32" else f"{dtype}, products in {products}",
    }


def checklists(contents: Contents) -> dict[str, list[dict[str, str]]]:
    """Returns checklists.json: questions of the ACM's artifact badges (version 1.1) and of the NeurIPS paper
    checklist, answered as far as the files of the bundle show it.

    An answer is yes, no, partly, or "the authors": then no file can tell, and the authors have to answer.
    """
    return {"ACM artifact badges 1.1": _acm(contents), "NeurIPS paper checklist": _neurips(contents)}


def _item(question: str, answer: str, evidence: str) -> dict[str, str]:
    return {"question": question, "answer": answer, "evidence": evidence}


def _acm(contents: Contents) -> list[dict[str, str]]:
    claims = sum(len(drawn.claims) for drawn in contents.artifacts)
    return [
        _item(
            "Artifacts Available: is the artifact in a public archive under a persistent identifier?",
            "the authors",
            "The bundle is one file that can be archived; it does not know whether it was.",
        ),
        _item(
            "Artifacts Evaluated, Functional: documented, consistent, complete, exercisable?",
            "yes" if contents.jobs else "partly",
            f"README.md documents it; claims.json links {claims} claims to {len(contents.jobs)} jobs; "
            "manifest.json lists all files; `mobench verify` runs rows again.",
        ),
        _item(
            "Artifacts Evaluated, Reusable: structured so that others can build on it?",
            "yes",
            "Rows are CSV and described by croissant.json; claims.schema.json is the schema of claims.json; "
            "each job has its configuration and command.",
        ),
        _item(
            "Results Reproduced: obtained by others with the authors' artifacts?",
            "the authors",
            "What others found is not in the bundle; `mobench verify` says what they find.",
        ),
    ]


def _neurips(contents: Contents) -> list[dict[str, str]]:
    verdicts = Counter(str(c["verdict"]) for drawn in contents.artifacts for c in drawn.claims)
    seeds = [len(job.meta["identity"]["seeds"]) for job in contents.jobs.values()]
    intervals = sum("95 % interval" in str(c["measured"]) for d in contents.artifacts for c in d.claims)
    cost = compute(contents)
    dirty = code()["git_dirty"]
    data = {
        str(job.meta["data"]): origins().get(str(job.meta["identity"]["problem"].get("data")))
        for job in contents.jobs.values()
        if job.meta.get("data") is not None
    }
    unknown = [label for label, known in data.items() if known is None or known["license"].startswith("not ")]
    several = bool(seeds) and min(seeds) > 1
    return [
        _item(
            "Claims: do they match the results?",
            "partly" if set(verdicts) - {"reproduced", "check passed"} else "yes",
            "Verdicts in claims.json: "
            + (", ".join(f"{n} {v}" for v, n in sorted(verdicts.items())) or "none"),
        ),
        _item(
            "Experimental result reproducibility: is all disclosed that it takes to reproduce the results?",
            "yes" if contents.jobs else "partly",
            "runs/*/config.yaml, claims.json (commands), environment/lock.txt, code/version.json.",
        ),
        _item(
            "Open access to data and code?",
            "partly" if dirty or data else "yes",
            ("The code has changes, which code/changes.diff holds. " if dirty else "")
            + (
                f"Data that are not in the bundle: {listed(data)}; data/ says where they are."
                if data
                else "No data set is used."
            ),
        ),
        _item(
            "Experimental setting and details: hyper-parameters, splits, optimizer?",
            "yes" if contents.jobs else "partly",
            "The resolved configuration of every job: runs/*/config.yaml.",
        ),
        _item(
            "Statistical significance: error bars?",
            "partly" if seeds else "no",
            f"Seeds per job: {min(seeds, default=0)} to {max(seeds, default=0)}"
            f"{'' if several else ' (one seed has no interval)'}; {intervals} claims state a 95 % interval.",
        ),
        _item(
            "Compute resources: disclosed?",
            "yes" if contents.jobs else "partly",
            f"compute.json: {cost['core_hours']:.3g} core-hours, {cost['gpu_hours']:.3g} GPU-hours, at most "
            f"{cost['peak_memory_mib']:.0f} MiB, on {listed(cost['devices']) or 'no device'}; "
            f"not counted: {cost['not_counted']}.",
        ),
        _item(
            "Licences of existing assets: credited and respected?",
            "the authors" if unknown else "yes",
            f"No licence is known of {listed(unknown)}." if unknown else "data/ names licence and citation.",
        ),
    ]
