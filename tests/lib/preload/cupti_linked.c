/* SPDX-License-Identifier: MIT
 * cupti_linked.c: a profiler that is linked with CUPTI and imports the second form of the subscription. */
int cuptiSubscribe_v2(void **, void *, void *, void *) __attribute__((weak));
int cupti_linked_start(void);
int cupti_linked_start(void)
{
    void *subscriber;
    return cuptiSubscribe_v2 ? cuptiSubscribe_v2(&subscriber, (void *)0, (void *)0, (void *)0) : -1;
}
