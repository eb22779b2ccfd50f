"""Graphiti (https://github.com/getzep/graphiti) under test: a graph of facts, in this process, on its driver for the
embedded database Kuzu.

Each statement is stored as it is, as the fact of an edge from the person to an information domain, and edges are found
by Graphiti's own search: words (BM25), vectors (cosine), or both, joined by their ranks. Graphiti's extraction is not
used: it asks a language model for entities, and for facts in its own words. Vectors are requested by the run, so that
all calls are recorded."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, ClassVar, TypeVar

from cimemories.memory.recalled import Line, MemorySystemError, Needs, Question, Recalled
from cimemories.memory.retrieval import ORDERS, Embedding, query_of
from cimemories.model import Context, Profile

SEARCHES = {"hybrid": ("bm25", "cosine_similarity"), "bm25": ("bm25",), "cosine": ("cosine_similarity",)}
_GROUP = "profile"
_PERSON = "person"
# Kuzu reserves 8 TiB of addresses for a database otherwise, and a process has room for 15 of these.
_LARGEST, _BUFFER = 1 << 30, 256 << 20
_starting = threading.Lock()

T = TypeVar("T")


class Graphiti(Embedding):
    """The k facts that Graphiti's search of edges finds. search: hybrid, as Graphiti.search does by default (BM25 and
    cosine, reciprocal rank fusion), bm25 or cosine. threshold: the least cosine of a fact found by its vector;
    Graphiti's own is 0.6. There may be fewer than k lines: facts that no search finds are not recalled."""

    name, about = "graphiti", "Graphiti: the k facts that Graphiti finds for the task"
    help: ClassVar = {
        "search": "By words (bm25), by vectors (cosine), or by both, joined by their ranks (hybrid)",
        "threshold": "Graphiti recalls nothing by a vector that scores below it. From -1 to 1",
    }
    # httpx: graphiti-core imports it without depending on it.
    needs: ClassVar = Needs(
        "graphiti-core", ("graphiti_core", "kuzu", "httpx"), "`pip install 'cimemories-studio[graphiti]'`"
    )
    choices: ClassVar = {"order": ORDERS, "search": tuple(SEARCHES)}
    # A plan builds no graph, which takes seconds a profile: as many statements stand in for the recalled facts.
    stand_in: ClassVar = "embedding"

    def __init__(
        self,
        k: int = 20,
        order: str = "profile",
        search: str = "hybrid",
        threshold: float = 0.6,
        model: str = "",
        base_url: str = "",
    ) -> None:
        super().__init__(k, order, model, base_url)
        if search not in SEARCHES:
            raise MemorySystemError(f"search is {', '.join(SEARCHES)}, not '{search}'.")
        if not -1 <= threshold <= 1:
            raise MemorySystemError(f"threshold is from -1 to 1, not {threshold}.")
        if model and search == "bm25":
            raise MemorySystemError("search=bm25 uses no vectors: leave the model out.")
        self.search, self.threshold = search, threshold
        self.version += f", graphiti-core {version('graphiti-core')}, kuzu {version('kuzu')}"

    def ingest(self, profile: Profile) -> Generator[Question, str, None]:
        texts, vectors = yield from self.vectors(profile)
        by_text = {_key(text): vector for text, vector in zip(texts, vectors.tolist(), strict=True)}
        self._graph = _awaited(_graph(profile, by_text))

    def recall(self, context: Context, prompt: str) -> Recalled:
        from graphiti_core.search.search_config import EdgeReranker, EdgeSearchConfig, EdgeSearchMethod, SearchConfig

        methods = [EdgeSearchMethod[method] for method in SEARCHES[self.search]]
        edges = EdgeSearchConfig(search_methods=methods, reranker=EdgeReranker.rrf, sim_min_score=self.threshold)
        config = SearchConfig(edge_config=edges, limit=self.k)
        result = _awaited(self._graph.search_(query_of(context), config, group_ids=[_GROUP]))
        scored = [
            (int(edge.uuid), round(float(score), 6))
            for edge, score in zip(result.edges, result.edge_reranker_scores, strict=True)
        ]
        scored.sort(key=lambda item: item[0] if self.order == "profile" else (-item[1], item[0]))
        return Recalled(tuple(Line(self.statements[position], (position,), score) for position, score in scored))


async def _graph(profile: Profile, vectors: Mapping[str, Sequence[float]]) -> Any:
    """Return a Graphiti in memory that sends no requests and holds this profile's statements."""
    graphiti, driver = _started(vectors)
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.edges import EntityEdge
    from graphiti_core.graph_queries import get_fulltext_indices
    from graphiti_core.nodes import EntityNode
    from graphiti_core.utils.bulk_utils import add_nodes_and_edges_bulk
    from graphiti_core.utils.datetime_utils import utc_now

    now = utc_now()

    def node(uuid: str, name: str) -> Any:
        # Nodes are not searched for, so their vectors are arbitrary.
        return EntityNode(uuid=uuid, name=name, group_id=_GROUP, created_at=now, name_embedding=[0.0])

    domains = {domain: f"domain-{n}" for n, domain in enumerate(dict.fromkeys(a.domain for a in profile.attributes))}
    nodes = [node(_PERSON, profile.name), *(node(uuid, domain) for domain, uuid in domains.items())]
    edges = [
        EntityEdge(
            uuid=str(position),
            name="RELATES_TO",
            fact=attribute.statement,
            fact_embedding=vectors[_key(attribute.statement)],
            group_id=_GROUP,
            source_node_uuid=_PERSON,
            target_node_uuid=domains[attribute.domain],
            created_at=now,
        )
        for position, attribute in enumerate(profile.attributes)
    ]
    await add_nodes_and_edges_bulk(driver, [], [], nodes, edges, graphiti.embedder)
    for query in get_fulltext_indices(GraphProvider.KUZU):
        if "RelatesToNode_" in query:  # facts
            await driver.execute_query(query)
    return graphiti


def _started(vectors: Mapping[str, Sequence[float]]) -> tuple[Any, Any]:
    """Return a Graphiti and its driver, on an empty database."""
    with _starting:
        os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "False"  # it reports home otherwise
        before = os.environ.get("PYTHON_DOTENV_DISABLED")
        os.environ["PYTHON_DOTENV_DISABLED"] = "1"  # it loads any .env into this process's environment otherwise
        try:
            import kuzu
            from graphiti_core import Graphiti as Core
            from graphiti_core.cross_encoder.openai_reranker_client import OpenAIRerankerClient
            from graphiti_core.driver.kuzu_driver import KuzuDriver
            from graphiti_core.embedder.client import EmbedderClient
            from graphiti_core.llm_client.config import LLMConfig
            from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
        finally:
            if before is None:
                del os.environ["PYTHON_DOTENV_DISABLED"]
            else:
                os.environ["PYTHON_DOTENV_DISABLED"] = before

        class PrecomputedEmbedder(EmbedderClient):  # type: ignore[misc]  # mypy does not follow this package
            """An embedder that looks its vectors up."""

            async def create(self, input_data: Any) -> list[float]:
                (text,) = input_data
                return list(vectors[_key(text)])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Kuzu's: see docs/memory.md
            driver = KuzuDriver(":memory:")
        driver.client.close()
        driver.db.close()
        driver.db = kuzu.Database(":memory:", buffer_pool_size=_BUFFER, max_db_size=_LARGEST)
        driver.setup_schema()
        # One thread, for deterministic results: equal scores keep the profile's order.
        driver.client = kuzu.AsyncConnection(driver.db, max_concurrent_queries=1, max_threads_per_query=1)
    unused = LLMConfig(api_key="none", base_url="http://127.0.0.1:9/v1", model="none")
    graphiti = Core(
        graph_driver=driver,
        llm_client=OpenAIGenericClient(unused),
        embedder=PrecomputedEmbedder(),
        cross_encoder=OpenAIRerankerClient(unused),
    )
    # The connection is closed first: callbacks are called in reverse order.
    weakref.finalize(graphiti, driver.db.close)
    weakref.finalize(graphiti, driver.client.close)
    return graphiti, driver


def _awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread and return its result, since this thread may have a running loop."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()


def _key(text: str) -> str:
    return text.replace("\n", " ")  # as Graphiti hands texts to its embedder
