/* SPDX-License-Identifier: MIT
 *
 * test_policy_conf.c: what each text of GPUPROF_ALLOC_CONF does to a policy, and the whole sentence of each error and
 * note.  tests/golden/conf.txt has the answers; GP_GOLDEN_UPDATE=1 writes it; read it before you commit it.
 */
#include "base/compiler.h"
#include "cache/policy.h"
#include "lib/golden.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define K16 "0123456789abcdef"

/* all: for every policy; others for pytorch alone. */
static const struct {
    bool all;
    const char *text;
} texts[] = {
    {true, ""},
    {false, " , "},
    {true, "max_split_size_mb:20"},
    {false, "max_split_size_mb:19"},
    {false, "max_split_size_mb:0"},
    {false, " max_split_size_mb : 2 0 0 "},
    {false, "max_split_size_mb:20MB"},
    {false, "max_split_size_mb:-20"},
    {false, "max_split_size_mb:"},
    {false, "max_split_size_mb"},
    {false, "max_split_size_mb,"},
    {false, "max_split_size_mb:,"},
    {false, "max_split_size_mb:[20]"},
    {false, "max_split_size_mb=20"},
    {false, "max_split_size_mb:20 max_non_split_rounding_mb:20"},
    {false, "max_split_size_mb:20]"},
    {false, "max_split_size_mb:20:30"},
    {false, "max_split_size_mb:20[max_non_split_rounding_mb:20"},
    {false, "max_split_size_mb:20,max_split_size_mb:30"},
    {false, "max_split_size_mb:1099511627775"},
    {false, "max_split_size_mb:1099511627776"},
    {false, "max_split_size_mb:1099511627777"},
    {false, "max_split_size_mb:1844674407370955160"},
    {false, "max_split_size_mb:18446744073709551609"},
    {false, "max_split_size_mb:18446744073709551610"},
    {false, "max_split_size_mb:18446744073709551620"},
    {false, "max_split_size_mb:184467440737095516150"},
    {false, "max_split_size_mb:9/"},
    {false, "max_split_size_mb:9:"},
    {false, "max_non_split_rounding_mb:20"},
    {false, "max_non_split_rounding_mb:19"},
    {false, "max_non_split_rounding_mb:x"},
    {true, "large_segment_size_mb:10"},
    {false, "large_segment_size_mb:9"},
    {false, "large_segment_size_mb:11"},
    {false, "large_segment_size_mb:12"},
    {false, "large_segment_size_mb:x"},
    {false, "max_split_size_mb:40,large_segment_size_mb:40"},
    {false, "max_split_size_mb:40,large_segment_size_mb:42"},
    {false, "large_segment_size_mb:42,max_split_size_mb:40"},
    {true, "garbage_collection_threshold:0.8"},
    {false, "garbage_collection_threshold:0"},
    {false, "garbage_collection_threshold:0.0001"},
    {false, "garbage_collection_threshold:.5"},
    {false, "garbage_collection_threshold:0.99999"},
    {false, "garbage_collection_threshold:1"},
    {false, "garbage_collection_threshold:1.0"},
    {false, "garbage_collection_threshold:."},
    {false, "garbage_collection_threshold:0.5.5"},
    {false, "garbage_collection_threshold:5e-1"},
    {false, "garbage_collection_threshold:0,5"},
    {false, "garbage_collection_threshold:0.5:"},
    {false, "garbage_collection_threshold:0/5"},
    {true, "per_process_memory_fraction:0.25"},
    {false, "per_process_memory_fraction:0"},
    {false, "per_process_memory_fraction:1"},
    {false, "per_process_memory_fraction:1.0001"},
    {false, "per_process_memory_fraction:12.5"},
    {false, "per_process_memory_fraction:half"},
    {false, "per_process_memory_fraction:-0.5"},
    {false, "per_process_memory_fraction:.5,garbage_collection_threshold:nan"},
    {true, "expandable_segments:True"},
    {true, "expandable_segments:False"},
    {false, "expandable_segments:True,expandable_segments:False"},
    {false, "expandable_segments:true"},
    {false, "expandable_segments:1"},
    {true, "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5"},
    {true, "max_split_size_mb:64,garbage_collection_threshold:0.5"},
    {false, "roundup_power2_divisions:4"},
    {false, "roundup_power2_divisions:1"},
    {false, "roundup_power2_divisions:0"},
    {false, "roundup_power2_divisions:3"},
    {false, "roundup_power2_divisions:128"},
    {false, "roundup_power2_divisions:256"},
    {false, "roundup_power2_divisions:four"},
    {false, "roundup_power2_divisions:[64:8,256:4,>:1]"},
    {false, "roundup_power2_divisions:[1:2,2:4,4:8]"},
    {false, "roundup_power2_divisions:[16384:8,32768:16]"},
    {false, "roundup_power2_divisions:[32768:8,65536:16]"},
    {false, "roundup_power2_divisions:[1048576:8]"},
    {false, "roundup_power2_divisions:[>:8]"},
    {false, "roundup_power2_divisions:[64:0,>:0]"},
    {false, "roundup_power2_divisions:[256:4,64:8]"},
    {false, "roundup_power2_divisions:[ 64 : 8 , > : 2 ]"},
    {false, "roundup_power2_divisions:[63:8]"},
    {false, "roundup_power2_divisions:[0:8]"},
    {false, "roundup_power2_divisions:[x:8]"},
    {false, "roundup_power2_divisions:[64]"},
    {false, "roundup_power2_divisions:[64:]"},
    {false, "roundup_power2_divisions:[64:3]"},
    {false, "roundup_power2_divisions:[64:129]"},
    {false, "roundup_power2_divisions:[64:8"},
    {false, "roundup_power2_divisions:[64:8,"},
    {false, "roundup_power2_divisions:[]"},
    {false, "roundup_power2_divisions:[64:8]max_split_size_mb:20"},
    {false, "roundup_power2_divisions:[64:8],max_split_size_mb:20"},
    {false, "backend:native"},
    {false, "backend:cudaMallocAsync"},
    {false, "backend:other"},
    {false, "backend:[native]"},
    {false, "release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:False"},
    {false, "release_lock_on_cudamalloc:yes"},
    {false, "pinned_use_cuda_host_register:True,pinned_use_hip_host_register:True"},
    {false, "pinned_use_background_threads:True,pinned_free_catch_all:False"},
    {false, "pinned_num_register_threads:1,pinned_reserve_segment_size_mb:4"},
    {false, "pinned_num_register_threads:0"},
    {false, "pinned_num_register_threads:many"},
    {false, "graph_capture_record_stream_reuse:True"},
    {false, "throw_on_cudamalloc_oom:False"},
    {false, "expandable_segments_reserve:anything at all"},
    {false, "expandable_segments_reserve_by_class:[a:1,b:2]"},
    {false, "expandable_segments_reserve_by_class:[a:1"},
    {false, "expandable_segments_reserve_by_class:word"},
    {false, "backend:native,garbage_collection_threshold:0.7,unknown:1"},
    {false, "unknown:1"},
    {false, ":1"},
    {false, ",,"},
    {false, "[1]"},
    {false, K16 K16 K16 "0123456789abcde:1"},
    {false, K16 K16 K16 K16 ":1"},
    {false, "max_split_size_mb:" K16 K16 K16 K16},
    {false, "roundup_power2_divisions:[" K16 K16 K16 K16 ":1]"},
    {false, "roundup_power2_divisions:" K16 K16 K16 K16},
    {false, "expandable_segments_reserve:" K16 K16 K16 K16},
};

static void show(FILE *out, const struct gp_policy *policy, const char *text)
{
    struct gp_policy now = *policy;
    char why[2048] = "old", part[2048];
    int result = gp_policy_configure(&now, text, why, sizeof(why));
    fprintf(out, "%s \"%s\": %s\"%s\"\n", policy->name, text,
            result == -EINVAL ? "refused "
            : result          ? "odd "
                              : "",
            why);
    cr_expect(result == 0 || memcmp(&now, policy, sizeof(now)) == 0, "%s: a refused text changes the policy", text);
    if (memcmp(&now, policy, sizeof(now)) != 0) {
        fprintf(out, "    split %llu round %llu segment %llu page %llu collect %g fraction %g%s%s, divisions",
                (unsigned long long)now.max_split_bytes, (unsigned long long)now.max_round_bytes,
                (unsigned long long)now.large_segment_bytes, (unsigned long long)now.large_page_bytes, now.gc_threshold,
                now.memory_fraction, now.growable ? " grows" : "", now.moves_pages ? " moves" : "");
        for (unsigned i = 0; i < GP_POLICY_DIVISIONS; i++)
            fprintf(out, " %u", now.divisions[i]);
        fprintf(out, "\n");
    }
    /* Little room cuts the text and changes nothing else. */
    for (size_t room = 1; room < strlen(why) + 2; room++) {
        struct gp_policy same = *policy;
        memset(part, 'x', sizeof(part));
        cr_expect_eq(gp_policy_configure(&same, text, part, room), result);
        cr_expect(strncmp(part, why, room - 1) == 0 && strlen(part) < room && part[room] == 'x', "%s: %zu bytes", text,
                  room);
        cr_expect_eq(memcmp(&same, &now, sizeof(now)), 0);
    }
    struct gp_policy same = *policy;
    part[0] = 'x';
    cr_expect_eq(gp_policy_configure(&same, text, part, 0), result);
    cr_expect_eq(part[0], 'x');
}

Test(policy_conf, texts_mean_what_they_meant)
{
    char *now = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&now, &bytes);
    for (unsigned i = 0; i < GP_COUNT(texts); i++)
        for (unsigned p = 0; gp_policy_at(p); p++)
            if (texts[i].all || strcmp(gp_policy_at(p)->name, "pytorch") == 0)
                show(out, gp_policy_at(p), texts[i].text);
    for (unsigned i = 0; gp_policy_key(i); i++)
        fprintf(out, "key %u: %s\n", i, gp_policy_key(i));
    fclose(out);
    golden_expect("tests/golden/conf.txt", now, false);
    free(now);
}
