/* SPDX-License-Identifier: MIT
 *
 * counter.pml: a spin model of core/base/counter.c, one gauge.  UPDATERS threads allocate and free through SHARDS shards.
 * One observer takes snapshots, resets the peak, and begins, reads and ends a watch.  The ghosts truth/top/watch_top
 * change in the same step as the write that makes an update final; every value that the set reports is compared with them.
 * The model leaves out the totals, how long the set stays closed (here: any time) and how credit is dealt (here: all to
 * one shard, halves, or kept).  M_* are mutants: each must make an assertion fail (run.sh). */
#ifndef UPDATERS
#define UPDATERS 2
#endif
#ifndef SHARDS
#define SHARDS 2
#endif
#ifndef UPDATES
#define UPDATES 3 /* by each updater */
#endif
#ifndef LOOKS
#define LOOKS 3 /* by the observer */
#endif

mtype = { CLOSED, OPEN, BUSY };

mtype state[SHARDS] = CLOSED;
short credit[SHARDS];
bool used[SHARDS];
bool mutex, open;
short pool, limit, peak, mark; /* mark: the watch's peak */
bool watching;

short truth, top, watch_top; /* ghosts */
byte done;

inline ghost(change)
{
    truth = truth + (change);
    if
    :: truth > top -> top = truth
    :: else
    fi;
    if
    :: watching && truth > watch_top -> watch_top = truth
    :: else
    fi
}

inline lock()
{
    atomic { !mutex -> mutex = true }
}

/* gp_shard_own: waits while BUSY. */
inline own(s, next, got)
{
    if
    :: atomic { state[s] == OPEN -> state[s] = next; got = true }
    :: atomic { state[s] == CLOSED -> got = false }
#ifdef M_NO_WAIT /* the closer does not wait for a busy owner */
    :: atomic { next == CLOSED && state[s] == BUSY -> state[s] = CLOSED; got = true }
#endif
    fi
}

/* gp_shard_apply: got says whether the update happened. */
inline apply_shard(s, change, got)
{
#ifdef M_OPEN_FREE /* a free does not look at the state: one atomic addition to its credit */
    if
    :: change < 0 ->
        d_step { credit[s] = credit[s] - (change); ghost(change) };
        got = true
    :: change >= 0 -> apply_owned(s, change, got)
    fi
#else
    apply_owned(s, change, got)
#endif
}

inline apply_owned(s, change, got)
{
    own(s, BUSY, got);
    if
    :: got ->
        seen = credit[s];
        if
        :: change > 0 && seen < change -> got = false; seen = 0
        :: else ->
#ifdef M_EARLY_RELEASE /* the shard is released before the credit is written */
            state[s] = OPEN;
#endif
            d_step { credit[s] = seen - (change); ghost(change); seen = 0 }
        fi;
#ifndef M_EARLY_RELEASE
        state[s] = OPEN
#else
        if
        :: !got -> state[s] = OPEN
        :: else
        fi
#endif
    :: else
    fi
}

/* Closes shard after shard; all other threads may run in between.  The drain
 * itself is one step, because the closer then owns the shard. */
inline close_one(s)
{
    atomic {
        if
        :: s < SHARDS && used[s % SHARDS] ->
            own(s % SHARDS, CLOSED, closed);
            if
            :: closed ->
                pool = pool + credit[s % SHARDS];
                credit[s % SHARDS] = 0
            :: else
            fi;
            closed = false
        :: else
        fi
    }
}

inline close_all()
{
    if
    :: open ->
        close_one(0);
        close_one(1);
        open = false
    :: else
    fi
}

inline give(s, amount)
{
#ifdef M_OPEN_FIRST /* opens the shard before its credit is there */
    state[s] = OPEN;
    seen = credit[s];
    credit[s] = seen + (amount);
    seen = 0
#else
    d_step { credit[s] = credit[s] + (amount); state[s] = OPEN }
#endif
}

inline open_one(s)
{
    if
    :: s < SHARDS && used[s % SHARDS] && pool >= share ->
        pool = pool - share;
        give(s % SHARDS, share)
    :: s < SHARDS && used[s % SHARDS] && pool < share -> give(s % SHARDS, 0)
    :: else
    fi
}

inline open_all()
{
    atomic {
        if
        :: share = 0
        :: share = pool / SHARDS
        :: share = pool
        fi;
        open = true
    };
    open_one(0);
    open_one(1);
    share = 0
}

inline maybe_open()
{
    if
    :: !open -> open_all()
    :: true
    fi
}

inline relimit()
{
    fresh = peak;
    if
    :: watching && mark < peak -> fresh = mark
    :: else
    fi;
    pool = pool + fresh - limit;
    limit = fresh;
    fresh = 0
}

/* gp_gauge_raise: under the mutex, everything closed. */
inline raise()
{
    if
    :: pool < 0 ->
        current = limit - pool;
        if
        :: current > peak -> peak = current
        :: else
        fi;
        if
        :: watching && current > mark -> mark = current
        :: else
        fi;
        current = 0;
        relimit()
    :: else
    fi
}

/* gp_counter_apply */
inline apply(s, change)
{
    apply_shard(s, change, got);
    if
    :: !got ->
        lock();
        if
        :: !used[s] ->
            used[s] = true;
            if
            :: open -> state[s] = OPEN
            :: else
            fi
        :: else
        fi;
        if
        :: open -> apply_shard(s, change, got)
        :: else
        fi;
        if
        :: !got ->
            close_all();
            d_step { pool = pool - (change); ghost(change); raise() };
            maybe_open()
        :: else
        fi;
        mutex = false
    :: else
    fi
}

inline judge()
{
    d_step {
        assert(pool >= 0);
        assert(limit - pool == truth);
        assert(peak == top);
        assert(!watching || mark == watch_top)
    }
}

proctype updater(byte me)
{
    byte n;
    short holds, amount, seen, current, share, fresh;
    bool got, closed;
    do
    :: n < UPDATES ->
        n++;
        if
        :: amount = 1
        :: amount = 2
        :: holds >= 1 -> amount = -1
        :: holds >= 2 -> amount = -2
        fi;
        apply(me % SHARDS, amount);
        holds = holds + amount;
        amount = 0
    :: else -> break
    od;
    done++
}

inline look_reset()
{
#ifdef M_RESET_OPEN /* reset reads the current total without closing */
    peak = limit - pool;
    d_step { top = truth };
#else
    close_all();
    judge();
    peak = limit - pool;
    d_step { top = truth };
#ifdef M_RESET_LIMIT /* reset leaves the dealt limit where it was */
#else
    d_step { relimit() };
#endif
    judge();
#endif
    maybe_open()
}

inline look_begin()
{
    close_all();
    judge();
    d_step {
        watching = true;
        mark = limit - pool;
        watch_top = truth
    };
#ifndef M_WATCH_LIMIT /* the watch does not lower the limit */
    d_step { relimit() };
#endif
    maybe_open()
}

proctype observer()
{
    byte n;
    short seen, share, fresh;
    bool closed;
    do
    :: n < LOOKS ->
        n++;
        lock();
        if
        :: true -> close_all(); judge(); maybe_open()
        :: true -> look_reset()
        :: !watching -> look_begin()
        :: watching -> assert(mark == watch_top) /* read: nothing is closed */
        :: watching ->
            assert(mark == watch_top);
            d_step { watching = false; watch_top = 0; mark = 0; relimit() }
        :: assert(peak == top) /* watermarks move only under the mutex */
        fi;
        mutex = false
    :: else -> break
    od;
    done++
}

init
{
    byte t;
    short seen;
    bool closed;
    atomic {
        do
        :: t < UPDATERS -> run updater(t); t++
        :: else -> break
        od;
        run observer()
    };
    done == UPDATERS + 1;
    close_all();
    judge()
}
