# SPDX-License-Identifier: MIT
"""Asks an engine the five questions of docs/fleet.md: ask.py ENGINE PAGE ANSWERS, in the folder that has `tables` (Parquet) and
`arrow` (Arrow files).

ENGINE is duckdb, duckdb-arrow, clickhouse, clickhouse-arrow, spark, polars, pandas or pyarrow.  The first six get the statements of
the page as they are there; pandas answers in its own words, and pyarrow only the first question.  ANSWERS gets JSON: the rows of
each question.  The types of the columns that the engine sees are checked here.
"""
import glob
import json
import os
import re
import sys
import time

engine, page, answers = sys.argv[1:4]
TABLES = ("events", "blocks", "sites", "devices", "sleeps")
sql = {name: text.strip().rstrip(";") for name, text in re.findall(r"```sql (\w+)\n(.*?)```", open(page).read(), re.S)}
QUESTIONS = ("peaks", "worst", "grown", "unlike", "gpus", "asleep")


def arrow_table(table):
    import pyarrow
    import pyarrow.ipc
    files = sorted(glob.glob(f"arrow/{table}/*/*/*.arrows"))
    return pyarrow.concat_tables(pyarrow.ipc.open_stream(file).read_all() for file in files)


def rows(names, values):
    return [dict(zip(names, row)) for row in values]


def duckdb():
    import duckdb
    db = duckdb.connect()
    for table in TABLES:
        db.execute(sql["duckdb"].replace("events", table))
    types = {row[0]: row[1] for row in db.execute("DESCRIBE events").fetchall()}
    wanted = {"job": "VARCHAR", "rank": "INTEGER", "device": "INTEGER", "on_host": "BOOLEAN", "bytes": "BIGINT",
              "allocated_change": "BIGINT"}
    assert {name: types[name] for name in wanted} == wanted and types["time"].startswith("TIMESTAMP"), types
    db.execute("CREATE TABLE held AS " + sql["held"])
    return db


def duckdb_ask(db, question):
    done = db.execute(sql[question])
    return rows([column[0] for column in done.description], done.fetchall())


def duckdb_arrow():
    import duckdb
    db = duckdb.connect()
    for table in TABLES:
        db.register(table, arrow_table(table))
    db.execute("CREATE TABLE held AS " + sql["held"])
    return db


def clickhouse(arrow=False):
    from chdb import session
    db = session.Session()
    statements = sql["clickhouse"]
    if arrow:
        statements = statements.replace("tables/", "arrow/").replace(".parquet'", ".arrows', 'ArrowStream'")
    for statement in statements.split(";"):
        # The session has a folder of its own as its current one.
        db.query(re.sub(r"file\('", f"file('{os.getcwd()}/", statement))
    db.query("CREATE TABLE held ENGINE = MergeTree ORDER BY tuple() AS " + sql["held"])
    return db


def clickhouse_ask(db, question):
    said = str(db.query(sql[question] + " SETTINGS output_format_json_quote_64bit_integers = 0", "JSONEachRow"))
    return [json.loads(line) for line in said.splitlines()]


def spark():
    from pyspark.sql import SparkSession
    db = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
          .config("spark.sql.shuffle.partitions", "8").config("spark.driver.bindAddress", "127.0.0.1")
          .config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate())
    db.sparkContext.setLogLevel("ERROR")
    for statement in sql["spark"].split(";"):
        db.sql(statement.strip().replace("'tables/", f"'{os.getcwd()}/tables/"))
    types = dict(db.table("events").dtypes)
    wanted = {"job": "string", "rank": "int", "device": "int", "on_host": "boolean", "bytes": "bigint", "time": "bigint"}
    assert {name: types[name] for name in wanted} == wanted, types
    db.sql("CACHE TABLE held AS " + sql["held"])
    return db


def spark_ask(db, question):
    return [row.asDict() for row in db.sql(sql[question]).collect()]


def polars():
    import polars
    db = polars.SQLContext()
    for table in TABLES:
        db.register(table, polars.scan_parquet(f"tables/{table}/*/*/*.parquet", hive_partitioning=False))
    schema = polars.scan_parquet("tables/events/*/*/*.parquet", hive_partitioning=False).collect_schema()
    assert schema["time"] == polars.Datetime("ns", "UTC") and schema["on_host"] == polars.Boolean, schema
    for path in glob.glob("arrow/events/*/*/*.arrows")[:1]:
        assert polars.read_ipc_stream(path).schema == schema, path
    return db


def pandas():
    import pandas
    return {table: pandas.read_parquet(glob.glob(f"tables/{table}/*/*/*.parquet"), partitioning=None) for table in TABLES}


def pandas_peaks(events):
    events = events[events.device.notna()].sort_values(["job", "rank", "pid", "device", "event"], kind="stable")
    held = events.groupby(["job", "rank", "pid", "device"]).allocated_change.cumsum()
    return held.groupby([events.job, events["rank"], events.device]).max().rename("peak_bytes").reset_index()


def pandas_held(db):
    keys = ["job", "rank", "pid"]
    held = db["blocks"].merge(db["devices"][[*keys, "device", "peak_event"]], on=[*keys, "device"])
    held = held[held.counted & ~(held.from_event > held.peak_event) & ~(held.to_event <= held.peak_event)]
    held = held.merge(db["sites"][[*keys, "site", "label", "operation"]].fillna({"operation": ""}), on=[*keys, "site"])
    return held.groupby(["job", "rank", "device", "label", "operation"]).bytes.sum().reset_index()


def pandas_ask(db, question):
    if "held" not in db:
        db["held"] = pandas_held(db)
    held = db["held"]
    line = ["label", "operation"]
    if question == "peaks":
        return pandas_peaks(db["events"]).to_dict("records")
    if question == "worst":
        devices = db["devices"][(db["devices"].job == "now") & ~db["devices"].on_host]
        worst = devices.sort_values(["peak_bytes", "rank"], ascending=[False, True]).iloc[:1]
        return (held.merge(worst[["job", "rank", "device"]]).sort_values(["bytes", "label"], ascending=[False, True])
                .head(10).to_dict("records"))
    if question == "grown":
        signed = held.assign(grown=held.bytes.where(held.job == "now", -held.bytes))
        grown = signed.groupby(["rank", *line]).grown.sum().reset_index().query("grown > 0")
        return grown.sort_values(["grown", "rank", "label"], ascending=[False, True, True]).head(10).to_dict("records")
    if question == "unlike":
        wide = held[held.job == "now"].pivot_table(index="rank", columns=line, values="bytes", aggfunc="sum", fill_value=0)
        median = wide.quantile(0.5, interpolation="lower")
        off = (wide - median).abs().gt(wide.sum(axis=1) / 100, axis=0).stack(line, future_stack=True)
        both = wide.stack(line, future_stack=True)[off].rename("bytes").reset_index()
        return [{**row, "median": int(median[row["label"], row["operation"]])} for row in both.to_dict("records")]
    if question == "gpus":
        devices = db["devices"][(db["devices"].job == "now") & ~db["devices"].on_host]
        same = devices.groupby(["name", "total_bytes"])["rank"].transform("size")
        return devices[2 * same < len(devices)][["rank", "name", "total_bytes"]].to_dict("records")
    sleeps = db["sleeps"].sort_values("time", kind="stable")
    asleep = sleeps.bytes.where(sleeps.what == "falls", -sleeps.bytes).groupby([sleeps.job, sleeps["rank"], sleeps.device]).cumsum()
    return (asleep.groupby([sleeps.job, sleeps["rank"], sleeps.device]).max().rename("asleep_bytes").reset_index()
            .to_dict("records"))


def pyarrow():
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet
    for table in TABLES:
        whole = arrow_table(table).schema
        for path in glob.glob(f"tables/{table}/*/*/*.parquet"):
            assert pyarrow.parquet.read_schema(path).equals(whole), (path, whole)
    assert whole.field("time").type == pyarrow.timestamp("ns", "UTC"), whole
    # The folders' names are what Hive makes of them.
    hive = pyarrow.dataset.dataset("tables/events", partitioning="hive")
    assert hive.schema.field("rank").type == pyarrow.int32(), hive.schema
    return arrow_table("events")


def pyarrow_ask(db, question):
    columns = ["job", "rank", "pid", "device", "event", "allocated_change"]
    return pandas_peaks(db.select(columns).to_pandas()).to_dict("records") if question == "peaks" else None


ENGINES = {"duckdb": (duckdb, duckdb_ask), "duckdb-arrow": (duckdb_arrow, duckdb_ask), "clickhouse": (clickhouse, clickhouse_ask),
           "clickhouse-arrow": (lambda: clickhouse(True), clickhouse_ask), "spark": (spark, spark_ask),
           "polars": (polars, None), "pandas": (pandas, pandas_ask), "pyarrow": (pyarrow, pyarrow_ask)}


def polars_ask(db, question):
    if "held" not in db.tables():
        db.register("held", db.execute(sql["held"], eager=True))
    return db.execute(sql[question], eager=True).to_dicts()


start, ask = ENGINES[engine]
ask = ask or polars_ask
begun = time.monotonic()
said, took = {}, {}
database = start()
took["tables"] = round(time.monotonic() - begun, 1)
for name in QUESTIONS:
    begun = time.monotonic()
    answer = ask(database, name)
    took[name] = round(time.monotonic() - begun, 1)
    if answer is not None:
        said[name] = answer
json.dump(said, open(answers, "w"), default=int)
print(f"{engine}: seconds {took}")
